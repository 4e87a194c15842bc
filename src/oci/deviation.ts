/**
 * Told about each part of a request that is not followed as it stands: the field's name, what it asked for, and why the
 * container runs without it. Values that may be secret are not told.
 */
export type OnDeviation = (field: string, value: string, reason: string) => void
