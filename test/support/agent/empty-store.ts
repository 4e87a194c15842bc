import type { DescriptorStore } from '../../../src/os/supervisor/supervisor.ts'

export const emptyStore: DescriptorStore = {
  take: () => undefined,
  handOver: () => {},
  names: () => [],
  store: async () => {},
  storeAll: () => {},
  remove: async () => {},
  drop: () => {},
}
