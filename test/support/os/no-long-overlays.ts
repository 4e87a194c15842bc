import { release } from 'node:os'

const [major = 0, minor = 0] = release().split('.').map(Number)

/** Kernels before Linux 6.7 take at most a page of options for an overlay. */
export const noLongOverlays = major < 6 || (major === 6 && minor < 7)
