{"key": "c82068ef3926a75e", "signature": "uzAb+n7OSKcVaIdyAM5zSmE6aThfELwwrTwjR6w7B78Gfwn9neHiH+WU58VAfhU8TTxBpu+oHUusMqv510fqCw=="}
