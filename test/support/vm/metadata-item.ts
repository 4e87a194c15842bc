import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { METADATA_ITEM } from '../../../src/base/vm-metadata/point-to-point.ts'
import { VMMetadata } from '../../../src/gen/vm.ts'
import type { VmSpec } from '../../../src/host/spec/spec.ts'
import { specKey } from '../../../src/host/spec/spec-key.ts'

const METADATA = VMMetadata.create({
  name: 'vm1',
  networkConfig: { v4: { ip: '10.0.0.2', peerIp: '10.0.0.1' }, v6: { ip: 'fd00::2', peerIp: 'fd00::1' } },
})

export function metadataItem(folder: string): Omit<VmSpec, 'board'> {
  const path = join(folder, 'metadata.pb')
  writeFileSync(path, VMMetadata.encode(METADATA).finish())
  const content = specKey('metadata-content')
  return {
    devices: { [specKey('metadata')]: { kind: 'fw-cfg', name: METADATA_ITEM, backend: content } },
    backends: { [content]: { kind: 'content', path } },
  }
}
