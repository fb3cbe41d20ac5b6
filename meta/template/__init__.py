"""New operators modelled on existing ones: rows for the files of this repository, or a package."""
