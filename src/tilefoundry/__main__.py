"""`python -m tilefoundry` is the command."""

from tilefoundry.cli.main import main

if __name__ == "__main__":
    main()
