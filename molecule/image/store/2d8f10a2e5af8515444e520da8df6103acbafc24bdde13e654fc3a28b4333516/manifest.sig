{"key": "c82068ef3926a75e", "signature": "/zka3IdpCHzCBZnLS/8hE6DupsVxLfpipV0UXnU+NkD0Aj05Ar4rc35VnknHrkeLjfUnWPAnrDzL7ZtG3CJ1Dw=="}
