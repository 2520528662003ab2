"""What proves a checkpoint: hashes of files and pieces, the manifest, and reading it all again."""
