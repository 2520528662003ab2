EXAMPLE = ""
def run() -> None:
    """chat"""
