"""Documents of the rules; what an operation's own file says is collected when asked for."""
