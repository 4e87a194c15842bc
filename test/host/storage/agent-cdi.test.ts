import { execFileSync } from 'node:child_process'
import { mkdirSync, readFileSync, symlinkSync, truncateSync, writeFileSync } from 'node:fs'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { type AgentPod, leftoversOf, NOTHING_LEFT, startPod } from '../../support/host/agent-pod.ts'

/** A device that is /dev/fuse under another name, which no runtime adds by default. */
const SPEC = `
cdiVersion: "0.6.0"
kind: example.org/fuse
containerEdits:
  env: [FUSE=yes]
  mounts:
    - {hostPath: /run/cdi/driver, containerPath: /driver, options: [ro, nosuid, bind]}
    - {hostPath: tmpfs, containerPath: /scratch, type: tmpfs, options: [size=1m]}
devices:
  - name: "0"
    containerEdits:
      env: [DEVICE=0]
      additionalGids: [4242]
      deviceNodes:
        - {path: /dev/my-fuse, hostPath: /dev/fuse, permissions: r}
      hooks:
        - hookName: createRuntime
          path: /bin/sh
          args: [sh, -c, "echo hooked > /run/cdi/hooked"]
  - name: first-loop
    containerEdits:
      deviceNodes: [{path: /dev/loop0}]
  - name: absent
    containerEdits:
      deviceNodes: [{path: /dev/no-such-node}]
`

const SCRIPT = `
echo $FUSE $DEVICE
cat /driver/version
grep -c '^tmpfs /scratch tmpfs .*size=1024k' /proc/mounts
stat -c '%F %t:%T' /dev/my-fuse
id -G
touch /driver/x 2>/dev/null || echo the mount is read-only
(: < /dev/my-fuse) && echo the device can be read
(: > /dev/my-fuse) 2>/dev/null || echo and not be written
`

describe('CDI devices on a real kernel', () => {
  let pod: AgentPod

  beforeAll(async () => {
    const settings = { visible_cdi_devices: 'true', cdi_timeout: '{ secs = 1, nanos = 0 }' }
    pod = await startPod({ settings })
    const folder = pod.started.inside('/run/cdi')
    mkdirSync(`${folder}/driver`, { recursive: true })
    writeFileSync(`${folder}/driver/version`, '1.2.3\n')
    writeFileSync(`${folder}/fuse.yaml`, SPEC)
    // Files that would make a reader block or fill its memory.
    execFileSync('mkfifo', [`${folder}/fifo.json`])
    symlinkSync('/dev/zero', `${folder}/endless.json`)
    writeFileSync(`${folder}/huge.json`, '')
    truncateSync(`${folder}/huge.json`, 2 ** 30)
  })

  afterAll(() => pod.stop())

  it.each([
    ['an annotation', { Annotations: { 'cdi.k8s.io/plugin': 'example.org/fuse=0' } }, []],
    ['the variable', {}, ['VISIBLE_CDI_DEVICES=example.org/fuse=0']],
  ])('gives a container what it asks for by %s', async (_, spec, env) => {
    const init = await pod.run('asking', ['sh', '-c', SCRIPT], { spec, env })
    const output = (await init.readAll()).toString()
    expect(output.split('\n')).toEqual([
      'yes 0',
      '1.2.3',
      '1',
      'character special file a:e5',
      '0 4242',
      'the mount is read-only',
      'the device can be read',
      'and not be written',
      '',
    ])
    await pod.remove('asking')
    expect(readFileSync(pod.started.inside('/run/cdi/hooked'), 'utf8')).toBe('hooked\n')
    expect(leftoversOf(pod.started, 'asking')).toEqual(NOTHING_LEFT)
  })

  it.each([
    [
      'example.org/fuse=9',
      'INTERNAL',
      'CDI device example.org/fuse=9 does not exist: example.org/fuse has 0, first-loop, absent',
    ],
    ['example.org/fuse=absent', 'INTERNAL', '/dev/no-such-node: no such node in the guest'],
    ['example.org/other=0', 'INTERNAL', 'Timeout after 1s waiting for CDI device example.org/other=0'],
    ['fuse', 'INVALID_ARGUMENT', `Annotations['cdi.k8s.io/plugin']: "fuse", want vendor/class=name`],
  ])('refuses %j, and leaves nothing', async (device, code, message) => {
    const spec = { Annotations: { 'cdi.k8s.io/plugin': device } }
    const refused = expect(pod.create('asking', ['sh', '-c', SCRIPT], { spec })).rejects
    await refused.toMatchObject({ code })
    await refused.toThrow(message)
    expect(leftoversOf(pod.started, 'asking')).toEqual(NOTHING_LEFT)
  })

  it('allows a device with the number 0, and not all others of its driver', async () => {
    const script =
      'mknod /dev/next b 7 1; for n in loop0 next; do (: < /dev/$n) 2>/dev/null && echo $n; done; true'
    const Annotations = { 'cdi.k8s.io/plugin': 'example.org/fuse=first-loop' }
    const init = await pod.run('asking', ['sh', '-c', script], {
      capabilities: ['CAP_MKNOD'],
      spec: { Annotations },
    })
    expect((await init.readAll()).toString()).toBe('loop0\n')
    await pod.remove('asking')
  })
})
