import type { DescriptorStore } from '../../../src/os/supervisor/supervisor.ts'

/** A store of descriptors that keeps nothing. */
export const emptyStore: DescriptorStore = {
  take: () => undefined,
  handOver: () => {},
  names: () => [],
  store: async () => {},
  remove: async () => {},
}
