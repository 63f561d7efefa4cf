{"key": "c82068ef3926a75e", "signature": "g5MPaCYV8Q8GkKNb0tSnvSUKs53Mhv8xvG78QQIay9iMwSA8Brm9IYfwCEb5cDwi3a4SCv3mah+a2Nfg42ywCQ=="}
