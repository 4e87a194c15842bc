/** `vendor.com/class`: both begin with a letter and end with a letter or digit. */
const KIND = /^[a-z](?:[\w.-]*[a-z\d])?\/[a-z](?:[\w.-]*[a-z\d])?$/i

const DEVICE = /^[a-z\d](?:[\w.:-]*[a-z\d])?$/i

/** Whether a text is the kind of CDI devices (`nvidia.com/gpu`). */
export function isKind(text: string): boolean {
  return KIND.test(text)
}

/** Whether a text is the name of a CDI device among those of its kind (`0`). */
export function isDeviceName(text: string): boolean {
  return DEVICE.test(text)
}
