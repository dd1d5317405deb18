"""`python -m swarepro`."""

from swarepro.cli.app import main

if __name__ == "__main__":
    main()
