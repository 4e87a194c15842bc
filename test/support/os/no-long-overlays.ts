import { release } from 'node:os'

const [major = 0, minor = 0] = release().split('.').map(Number)

/** Whether this machine's kernel takes no more than a page of options for an overlay: before Linux 6.7. */
export const noLongOverlays = major < 6 || (major === 6 && minor < 7)
