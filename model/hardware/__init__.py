"""The machine: memory levels, units, launch; loader of the TOML files."""
