import { type LinuxResources, Process, type Spec } from '../../gen/oci.ts'
import type { GuestSupport, HugePageSizes } from '../../oci/guest-support.ts'
import { hasController } from '../../os/cgroup/hierarchies.ts'
import type { Os } from '../../os/os.ts'
import type { OciRuntime } from '../oci-runtime/client.ts'
import { askedOf, processSupport } from '../process/process-support.ts'

const HUGE_PAGES = '/sys/kernel/mm/hugepages'

/** What the guest supports. Looks up only the features that the specification uses. */
export async function guestSupport(
  {
    os,
    runtime,
    isV2,
  }: {
    readonly os: Os
    readonly runtime: Pick<OciRuntime, 'seccomp'>
    readonly isV2: boolean
  },
  { Process: process, Linux: linux }: Spec,
): Promise<GuestSupport> {
  const asked = askedOf(process ?? Process.create())
  const hasFlags = (linux?.Seccomp?.Flags ?? []).length > 0
  return {
    ...(await processSupport(os, { ...asked, selinux: asked.selinux || linux?.MountLabel !== '' })),
    hugePageSizes: await hugePageSizes(os, isV2, linux?.Resources),
    seccompFlags: hasFlags ? await runtime.seccomp.flags() : new Set(),
  }
}

/** The huge page sizes in bytes that the guest can limit; empty when `resources` limits none. */
export async function hugePageSizes(
  os: Os,
  isV2: boolean,
  resources: LinuxResources | undefined,
): Promise<HugePageSizes> {
  if ((resources?.HugepageLimits ?? []).length === 0) return new Set()
  if (!(await hasController(os, 'hugetlb', isV2))) return new Set()
  const folders = await os.files.list(HUGE_PAGES)
  const kibibytes = folders.flatMap((name) => /^hugepages-(\d+)kB$/.exec(name)?.[1] ?? [])
  return new Set(kibibytes.map((number) => BigInt(number) << 10n))
}
