"""One command for a machine with a GPU: kernel tests, the defect on real hardware, and speed."""
