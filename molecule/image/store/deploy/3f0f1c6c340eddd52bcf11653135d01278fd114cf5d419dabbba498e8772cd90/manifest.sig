{"key": "c82068ef3926a75e", "signature": "5a7boqVD259JJyvmH69TZERndJUvvlspK+2gkikUDkBEuCC4Z1flMaicf6MAvtepNRoi2TpumbGhAolAiO00Ag=="}
