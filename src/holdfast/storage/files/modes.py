"""The modes of new files and folders."""

from __future__ import annotations

# In the data root: only its owner reads there, whatever the umask.
OWN_FILE, OWN_FOLDER = 0o600, 0o700
# In the user's repository: the umask decides, as with any other program.
COMMON_FILE, COMMON_FOLDER = 0o666, 0o777
