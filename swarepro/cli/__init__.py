"""The command line: it alone prints and chooses exit codes. One file per command."""
