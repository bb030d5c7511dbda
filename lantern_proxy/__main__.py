"""The command `lantern`; `python -m lantern_proxy` is the same."""

import sys


def main() -> None:
    try:
        from lantern_proxy.cli.main import main as run  # Ctrl-C may come while this is imported

        run()
    except KeyboardInterrupt:
        sys.exit("lantern: stopped")


if __name__ == "__main__":
    main()
