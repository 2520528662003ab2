EXAMPLE = ""
def run() -> None:
    """logs"""
