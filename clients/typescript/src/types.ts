/** One of the known values, or another one that a later version of the server has. */
export type OrUnknown<T extends string> = T | (string & {});
