"""`python -m agentops_memory` is the program itself."""

from .cli import main

if __name__ == "__main__":
    main()
