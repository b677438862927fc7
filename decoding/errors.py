"""The error of everything that a user can get wrong: one sentence that names the thing and the remedy."""


class UserError(ValueError):
    """Shown by the command line as it is, without a traceback, with exit code 2."""
