"""What a captured graph carries beside its nodes: facts of the request, source lines, checkpoints, warnings, gradients.

Capture writes them, the compiler reads them, and programs keep some of them for run time.
"""
