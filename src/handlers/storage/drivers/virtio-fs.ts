import { sharedFolder } from './shared-folder.ts'

/** A folder of the host that a virtio-fs device offers (spec E.3). */
export const virtioFs = sharedFolder('virtiofs', {
  EINVAL: 'no virtio-fs device has this tag, or an option is unknown to it',
})
