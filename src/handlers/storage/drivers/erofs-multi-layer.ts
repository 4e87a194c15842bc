import type { StorageDriver } from '../driver.ts'
import { mountImage } from './image/mount-image.ts'

/**
 * An image of erofs layers (spec E.3.7). Its storages come one for each layer, and are attached together; this is an
 * image of one.
 */
export const erofsMultiLayer: StorageDriver = {
  attach: (storage, request, signal) => mountImage([storage], request, signal),
}
