"""`python -m lantern_proxy` is `lantern`."""

from lantern_proxy.cli.main import main

if __name__ == "__main__":
    main()
