"""The command `keras-vqem`: one file a subcommand."""
