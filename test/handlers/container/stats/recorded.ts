import { type CgroupFiles, cgroupFiles } from '../../../../src/handlers/container/stats/cgroup-files.ts'
import { FakeOs } from '../../../fakes/os/fake-os.ts'

/** A cgroup with these texts by file name, all in one folder as on v2. */
export async function recordedCgroup(texts: Readonly<Record<string, string>>): Promise<CgroupFiles> {
  const os = new FakeOs()
  for (const [name, text] of Object.entries(texts)) await os.files.put(`/cgroup/${name}`, text)
  return cgroupFiles(os.files, () => '/cgroup')
}
