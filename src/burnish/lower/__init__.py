"""From torch calls to a small functional graph: one pass a file, `pipeline` lists them in order."""
