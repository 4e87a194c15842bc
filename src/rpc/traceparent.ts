/** The key of W3C's trace context in the metadata of a call. */
export const TRACEPARENT = 'traceparent'

/** A trace context of the known version has 55 characters; of a longer value nothing is looked at. */
const MOST_CHARACTERS = 64

/** Stands for a value that is too long to be looked at: no trace context either. */
const TOO_LONG = 'too long'

/** A `traceparent` as it is carried on. */
export function boundTraceparent(value: string): string {
  return value.length <= MOST_CHARACTERS ? value : TOO_LONG
}

/** The same of bytes, of which a text is made only when they are few. */
export function boundTraceparentBytes(value: Uint8Array): string {
  return value.length <= MOST_CHARACTERS ? Buffer.from(value).toString('latin1') : TOO_LONG
}
