/** `vendor.com/class`: both begin with a letter and end with a letter or digit. */
const KIND = /^[a-z](?:[\w.-]*[a-z\d])?\/[a-z](?:[\w.-]*[a-z\d])?$/i

const DEVICE = /^[a-z\d](?:[\w.:-]*[a-z\d])?$/i

export function isKind(text: string): boolean {
  return KIND.test(text)
}

export function isDeviceName(text: string): boolean {
  return DEVICE.test(text)
}
