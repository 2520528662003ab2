EXAMPLE = ""
def run() -> None:
    """status"""
