"""The command `keras-vqem`, with one module per subcommand."""
