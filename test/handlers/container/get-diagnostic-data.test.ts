import { describe, expect, it } from 'vitest'
import { neverAborted } from '../../../src/base/abort.ts'
import { containerRequest, machineWithSandbox } from '../../support/handlers/machine.ts'

const SOURCE = '/run/kata-containers/shared/containers/c1-termination-log'
const PATH = '/dev/termination-log'
const request = { logType: 'termination_log', containerId: 'c1' }

async function withLog(options: { readonly annotation?: string; readonly source?: string } = {}) {
  const made = await machineWithSandbox()
  const { annotation = PATH, source = SOURCE } = options
  const { OCI, ...container } = containerRequest('c1')
  const Annotations = { 'io.kubernetes.container.terminationMessagePath': annotation }
  const Mounts = [{ destination: PATH, source, type: 'bind', options: ['rbind'] }]
  await made.handlers.createContainer(
    containerRequest('c1', {}, { ...container, OCI: { ...OCI, Annotations, Mounts } }),
    neverAborted,
  )
  return made
}

describe('GetDiagnosticData', () => {
  it('returns the content of the termination log', async () => {
    const { handlers, os } = await withLog()
    await os.files.put(SOURCE, 'out of coffee\n')
    expect(await handlers.getDiagnosticData(request, neverAborted)).toBe('out of coffee\n')
  })

  it('returns at most 4096 bytes, and replaces invalid UTF-8', async () => {
    const { handlers, os } = await withLog()
    await os.files.put(SOURCE, 'x'.repeat(5000))
    expect(await handlers.getDiagnosticData(request, neverAborted)).toBe('x'.repeat(4096))
    await os.files.write(SOURCE, Buffer.from([0x61, 0xff, 0x62]))
    expect(await handlers.getDiagnosticData(request, neverAborted)).toBe('a\ufffdb')
  })

  it.each([
    ['the file', {}],
    ['the annotation', { annotation: '' }],
    ['a mount at the path', { annotation: '/elsewhere' }],
    ['a source in the guest', { source: 'tmpfs' }],
  ])('is empty without %s', async (_what, options) => {
    const { handlers } = await withLog(options)
    expect(await handlers.getDiagnosticData(request, neverAborted)).toBe('')
  })

  it('does not follow a symlink that the container made', async () => {
    const { handlers, os } = await withLog()
    await os.files.put('/etc/shadow', 'secret')
    await os.files.makeDirectories('/run/kata-containers/shared/containers')
    await os.files.symlink('/etc/shadow', SOURCE)
    await expect(handlers.getDiagnosticData(request, neverAborted)).rejects.toMatchObject({
      code: 'INTERNAL',
      message: `open ${SOURCE}: ELOOP`,
    })
  })

  it('refuses an unknown log type and an unknown container', async () => {
    const { handlers } = await withLog()
    await expect(
      handlers.getDiagnosticData({ ...request, logType: 'dmesg' }, neverAborted),
    ).rejects.toMatchObject({
      code: 'INVALID_ARGUMENT',
      message: "log_type: unknown type 'dmesg', want termination_log",
    })
    await expect(
      handlers.getDiagnosticData({ ...request, containerId: 'c9' }, neverAborted),
    ).rejects.toMatchObject({ code: 'INVALID_ARGUMENT', message: 'Invalid container id' })
  })
})
