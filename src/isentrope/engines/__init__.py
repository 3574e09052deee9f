"""One recipe, other engines: its translation to TRL and to verl, and how they are started."""
