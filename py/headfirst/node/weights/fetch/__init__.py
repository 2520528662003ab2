"""Where a checkpoint comes from: hubs and folders, asked for a list, and each file brought and proven."""
