"""The waist of the hourglass: one saved Run. Submodules are imported on use, so that the worker never loads pyarrow."""
