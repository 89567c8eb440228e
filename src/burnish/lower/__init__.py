"""Lowering: from torch calls to a small functional graph. `pipeline` lists the passes in order."""
