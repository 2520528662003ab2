"""evalscope: sends the requests of `deploy bench`, asks the questions of `deploy test --accuracy`."""
