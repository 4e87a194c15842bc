import { setImmediate as turn } from 'node:timers/promises'
import { beforeEach, describe, expect, it } from 'vitest'
import { cancelled, neverAborted } from '../../../src/base/abort.ts'
import { Spec } from '../../../src/gen/oci.ts'
import { waitForCdiEdits } from '../../../src/handlers/device/cdi/cdi.ts'
import { requestedCdiDevices } from '../../../src/oci/cdi/requested-devices.ts'
import { FakeOs } from '../../support/fakes/fake-os.ts'
import { recordingLog } from '../../support/fakes/recording-log.ts'
import { CDI } from '../../support/handlers/device/device-dependencies.ts'

const KIND = 'nvidia.com/gpu'

describe('waitForCdiEdits', () => {
  let os: FakeOs
  let log: ReturnType<typeof recordingLog>

  beforeEach(() => {
    os = new FakeOs()
    log = recordingLog()
  })

  it('reads nothing when nothing is requested', async () => {
    os.files.list = () => Promise.reject(new Error('looked'))
    await expect(find()).resolves.toEqual([])
  })

  it('returns the common edits of a file once, before its first device', async () => {
    await put('gpu.json', { containerEdits: { env: ['ALL=1'] }, devices: [device('0'), device('1')] })
    await put('net.json', { kind: 'a.b/net', containerEdits: { env: ['NET=1'] }, devices: [device('x')] })
    expect(await env(`${KIND}=1`, 'a.b/net=x', `${KIND}=0`)).toEqual([
      ['ALL=1'],
      ['DEVICE=1'],
      ['NET=1'],
      ['DEVICE=x'],
      ['DEVICE=0'],
    ])
  })

  it('reads YAML by the rules of version 1.1', async () => {
    const lines = [
      'cdiVersion: 0.5.0',
      `kind: ${KIND}`,
      'devices:',
      '- name: 0',
      '  containerEdits:',
      '    deviceNodes:',
      '    - {path: /dev/gpu, type: c, major: 195, fileMode: 0660}',
    ]
    await os.files.put('/run/cdi/gpu.yaml', lines.join('\n'))
    const [, edits] = await find(`${KIND}=0`)
    expect(edits?.deviceNodes).toMatchObject([
      { path: '/dev/gpu', type: 'c', major: 195, minor: 0, fileMode: 0o660 },
    ])
  })

  it('uses a device named all for all devices, otherwise each of them', async () => {
    await put('gpu.json', { devices: [device('0'), device('1')] })
    await put('net.json', { kind: 'a.b/net', devices: [device('x'), device('all')] })
    const asked = [`VISIBLE_CDI_DEVICES=${KIND}=all:a.b/net=all`]
    const spec = Spec.fromPartial({ Process: { Env: asked } })
    const edits = await waitForCdiEdits(requestedCdiDevices(spec, true), dependencies(), neverAborted)
    expect(edits.flatMap(({ env }) => env)).toEqual(['DEVICE=0', 'DEVICE=1', 'DEVICE=all'])
  })

  describe('for a kind that is not described yet', () => {
    it('reads the folder each second until it is described', async () => {
      const finding = find(`${KIND}=0`)
      for (const _ of [1, 2]) await second()
      await put('gpu.json', { devices: [device('0')] })
      await second()
      await expect(finding).resolves.toHaveLength(2)
      expect(os.clock.sleeping).toBe(0)
    })

    it('logs once what it waits for', async () => {
      const finding = expect(find(`${KIND}=0`)).rejects
      for (const _ of [1, 2]) await second()
      expect(log.lines).toEqual([
        {
          level: 'info',
          message: 'waiting for CDI device',
          fields: { device: `${KIND}=0`, folder: '/run/cdi' },
        },
      ])
      await asleep()
      os.clock.advance(CDI.timeoutMs)
      await finding.toThrow('Timeout')
    })

    it('fails after the timeout', async () => {
      const finding = expect(find(`${KIND}=0`)).rejects
      await asleep()
      os.clock.advance(CDI.timeoutMs)
      await finding.toThrow(
        `Timeout after 100s waiting for CDI device ${KIND}=0: no specification in /run/cdi has it`,
      )
      expect(os.clock.sleeping).toBe(0)
    })

    it('ends with its call', async () => {
      const call = new AbortController()
      const finding = expect(findWith(call.signal, `${KIND}=0`)).rejects
      await asleep()
      call.abort(cancelled())
      await finding.toMatchObject({ code: 'CANCELLED' })
      expect(os.clock.sleeping).toBe(0)
    })

    it('names unreadable files once in the log, and in the error', async () => {
      await os.files.put('/run/cdi/gpu.json', '{"cdiVersion": "0.6.0"')
      await put('other.json', { kind: 'x' })
      const finding = expect(find(`${KIND}=0`)).rejects
      await second()
      await asleep()
      os.clock.advance(CDI.timeoutMs)
      await finding.toThrow(
        /; \/run\/cdi\/gpu.json: .*; \/run\/cdi\/other.json: kind: "x", want vendor\/class$/,
      )
      const warnings = log.lines.filter(({ level }) => level === 'warn')
      expect(warnings.map(({ message }) => message)).toEqual(Array(2).fill('CDI specification not read'))
    })
  })

  it('fails at once for a device that its kind does not have', async () => {
    await put('gpu.json', { devices: [device('0')] })
    await os.files.put('/run/cdi/more.yaml', 'kind: [')
    const finding = expect(find(`${KIND}=7`)).rejects
    await finding.toMatchObject({ code: 'INTERNAL' })
    await finding.toThrow(
      `CDI device ${KIND}=7 does not exist: ${KIND} has 0; unreadable: /run/cdi/more.yaml: `,
    )
  })

  it('refuses a device that two files describe', async () => {
    await put('a.json', { devices: [device('0')] })
    await put('b.json', { devices: [device('0')] })
    await expect(find(`${KIND}=0`)).rejects.toThrow(
      `CDI device ${KIND}=0: described twice, in /run/cdi/a.json and /run/cdi/b.json`,
    )
  })

  it('ignores links, fifos, folders, huge files and other names', async () => {
    await os.files.makeSpecial('/run/cdi/fifo.json', { kind: 'fifo' })
    await os.files.symlink('/dev/console', '/run/cdi/link.json')
    await os.files.makeDirectories('/run/cdi/folder.yaml')
    await os.files.put('/run/cdi/huge.json', ' '.repeat(300_000))
    await os.files.put('/run/cdi/notes.txt', 'x')
    await os.files.put('/run/cdi/deep.yaml', '['.repeat(20_000))
    await put('gpu.json', { devices: [device('0')] })
    await expect(find(`${KIND}=0`)).resolves.toHaveLength(2)
    // In the order of their names; each is refused before it is opened or read whole.
    expect(log.lines.map(({ fields }) => fields.error)).toEqual([
      expect.stringContaining('/run/cdi/deep.yaml: '),
      'read /run/cdi/fifo.json: EINVAL',
      'read /run/cdi/folder.yaml: EISDIR',
      '/run/cdi/huge.json: larger than 262144 bytes',
      'open /run/cdi/link.json: ELOOP',
    ])
  })

  it('reads a limited number of files', async () => {
    for (let index = 0; index < 65; index += 1) {
      await put(`${String(index).padStart(3, '0')}.json`, { devices: [device(`d${index}`)] })
    }
    await expect(find(`${KIND}=d63`)).resolves.toHaveLength(2)
    await expect(find(`${KIND}=d64`)).rejects.toThrow('/run/cdi: 65 files, of which 64 are read')
  })

  describe('with an incomplete node', () => {
    beforeEach(() => os.files.makeSpecial('/dev/nvidia0', { kind: 'character', major: 195, minor: 7 }))

    it.each([
      [{ path: '/dev/nvidia0' }],
      [{ path: '/dev/gpu', hostPath: '/dev/nvidia0' }],
      [{ path: '/dev/nvidia0', type: 'u' }],
    ])('looks at the node of the guest for %j', async (deviceNode) => {
      expect(await nodes(deviceNode)).toMatchObject([
        { path: deviceNode.path, type: 'c', major: 195, minor: 7, fileMode: 0o600 },
      ])
    })

    it('keeps a complete node without a lookup', async () => {
      const deviceNode = { path: '/dev/none', type: 'b', major: 8, permissions: 'r' }
      expect(await nodes(deviceNode)).toMatchObject([{ ...deviceNode, minor: 0, fileMode: 0 }])
      expect(await nodes({ path: '/dev/pipe', type: 'p' })).toMatchObject([{ type: 'p', major: 0, minor: 0 }])
    })

    it('keeps numbers that are given without a type', async () => {
      const device = { path: '/dev/nvidia0', major: 240, minor: 3 }
      expect(await nodes(device)).toMatchObject([{ ...device, type: 'c', fileMode: 0o600 }])
    })

    it('refuses a missing node and one of another type', async () => {
      const device = `CDI device ${KIND}=0: deviceNodes:`
      await expect(nodes({ path: '/dev/none' })).rejects.toThrow(
        `${device} /dev/none: no such node in the guest`,
      )
      await expect(nodes({ path: '/dev' })).rejects.toThrow(`${device} /dev: is a directory in the guest`)
      await expect(nodes({ path: '/dev/nvidia0', type: 'b' })).rejects.toThrow(
        `${device} /dev/nvidia0: type c in the guest, want b`,
      )
    })

    async function nodes(deviceNode: object) {
      await put('gpu.json', { devices: [{ name: '0', containerEdits: { deviceNodes: [deviceNode] } }] })
      return (await find(`${KIND}=0`))[1]?.deviceNodes
    }
  })

  const dependencies = () => ({ ...os, log: log.log, settings: CDI })

  function find(...names: string[]) {
    return findWith(neverAborted, ...names)
  }

  function findWith(signal: AbortSignal, ...names: string[]) {
    const annotations = names.length === 0 ? {} : { 'cdi.k8s.io/plugin': names.join(',') }
    const spec = Spec.fromPartial({ Annotations: annotations })
    return waitForCdiEdits(requestedCdiDevices(spec, false), dependencies(), signal)
  }

  async function env(...names: string[]) {
    return (await find(...names)).map((edits) => edits.env)
  }

  async function put(name: string, spec: object) {
    await os.files.put(`/run/cdi/${name}`, JSON.stringify({ cdiVersion: '0.6.0', kind: KIND, ...spec }))
  }

  async function asleep() {
    while (os.clock.sleeping === 0) await turn()
  }

  async function second() {
    await asleep()
    os.clock.advance(1000)
    await turn()
  }
})

function device(name: string) {
  return { name, containerEdits: { env: [`DEVICE=${name}`] } }
}
