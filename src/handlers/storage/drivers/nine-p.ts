import { sharedFolder } from './shared-folder.ts'

/** A folder of the host over 9p, which Debian's cloud kernel does not have. */
export const nineP = sharedFolder('9p', { ENOENT: 'no 9p device has this tag' })
