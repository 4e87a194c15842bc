import { existsSync, readFileSync } from 'node:fs'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { bind } from '../../support/containers/container-requests.ts'
import { type AgentPod, mountPointsOf, startPod } from '../../support/host/agent-pod.ts'

/** Shims mount the huge pages of an emptyDir volume with `medium: HugePages` here. */
const VOLUME = '/run/kata-containers/sandbox/ephemeral/hugepage'
const KERNEL_COUNT = '/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages'
const PAGE_BYTES = 2 * 2 ** 20

describe.skipIf(!existsSync(KERNEL_COUNT))('a volume of huge pages', () => {
  let pod: AgentPod
  let before: number
  beforeAll(async () => {
    before = pages()
    pod = await startPod()
  })
  afterAll(() => pod.stop())

  it('holds the pages that shims ask for with one option, until the sandbox ends', async () => {
    const options = {
      storages: [volume(`pagesize=${PAGE_BYTES},size=${2 * PAGE_BYTES}`)],
      mounts: [bind(VOLUME, '/huge')],
    }
    // fallocate(2) takes pages out of the pool; a page too many does not exist.
    const script = `stat -f -c '%S %b' /huge; fallocate -l ${2 * PAGE_BYTES} /huge/a && ! fallocate -l 1 /huge/b 2>&1`
    expect(await pod.output('user', script, options)).toBe(
      `${PAGE_BYTES} 2\nfallocate: fallocate '/huge/b': No space left on device\n`,
    )
    expect(pages()).toBe(before + 2)
  })

  it('that the kernel refuses to mount leaves no pages', async () => {
    const mountPoint = `${VOLUME}-refused`
    const given = pages()
    const storages = [{ ...volume(`pagesize=${PAGE_BYTES},size=${PAGE_BYTES},uid=nobody`), mountPoint }]
    await expect(pod.create('refused', ['true'], { storages })).rejects.toMatchObject({
      code: 'INTERNAL',
      message: expect.stringContaining(`mount ${mountPoint}: EINVAL`),
    })
    expect(pages()).toBe(given)
    expect(mountPointsOf(pod.started)).not.toContain(mountPoint)
  })

  it('gives its pages back when the sandbox ends', async () => {
    await pod.agent.destroySandbox({})
    expect(pages()).toBe(before)
  })
})

function volume(option: string) {
  const words = { driver: 'ephemeral', source: 'nodev', fstype: 'hugetlbfs', mountPoint: VOLUME }
  return { ...words, options: [option] }
}

function pages(): number {
  return Number(readFileSync(KERNEL_COUNT, 'utf8'))
}
