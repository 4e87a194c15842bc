/** Receives each part of a request that is not followed, and why. Secret values are left out. */
export type OnDeviation = (field: string, value: string, reason: string) => void
