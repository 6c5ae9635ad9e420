"""Pictures of the program for the README, made of the program itself: `python -m tools.pictures`."""
