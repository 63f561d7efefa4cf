// A type as it is in JSON: a name of an enumeration is its text or number there.
export type Plain<T> = unknown extends T
  ? T
  : T extends string
    ? `${T}`
    : T extends number | boolean | null | undefined
      ? T
      : T extends Array<infer One>
        ? Plain<One>[]
        : T extends object
          ? { [Key in keyof T]: Plain<T[Key]> }
          : T;
