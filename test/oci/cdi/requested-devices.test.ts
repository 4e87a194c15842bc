import { describe, expect, it } from 'vitest'
import { Spec } from '../../../src/gen/oci.ts'
import { requestedCdiDevices, textOf } from '../../../src/oci/cdi/requested-devices.ts'

describe('askedCdiDevices', () => {
  it('finds no devices in a spec that requests none', () => {
    expect(asked({ 'io.kubernetes.cri.container-name': 'web' }, ['PATH=/bin'])).toEqual([])
  })

  it('reads annotations in the order of their names, and each device once', () => {
    const annotations = {
      'cdi.k8s.io/vfio17': 'nvidia.com/gpu=1',
      'cdi.k8s.io/a_plugin': 'nvidia.com/gpu=0,example.org/net=eth0:1',
      'cdi.k8s.io/z': 'nvidia.com/gpu=0',
    }
    expect(asked(annotations)).toEqual(['nvidia.com/gpu=0', 'example.org/net=eth0:1', 'nvidia.com/gpu=1'])
  })

  it('reads the variable, and uses the last one', () => {
    const env = ['VISIBLE_CDI_DEVICES=x.y/z=9', 'VISIBLE_CDI_DEVICES=nvidia.com/gpu=0,2:example.org/net=eth0']
    expect(asked({}, env)).toEqual(['nvidia.com/gpu=0', 'nvidia.com/gpu=2', 'example.org/net=eth0'])
  })

  it('reads all as every device in the variable, and as a name in an annotation', () => {
    const spec = specOf({ 'cdi.k8s.io/x': 'a.b/c=all' }, ['VISIBLE_CDI_DEVICES=d.e/f=all'])
    expect(requestedCdiDevices(spec, true)).toEqual([
      { kind: 'a.b/c', name: 'all' },
      { kind: 'd.e/f', name: undefined },
    ])
  })

  it.each(['', 'none', 'void'])('reads the value %j of the variable as no devices', (value) => {
    expect(asked({}, [`VISIBLE_CDI_DEVICES=${value}`])).toEqual([])
  })

  it('ignores the variable unless the caller requests it', () => {
    expect(requestedCdiDevices(specOf({}, ['VISIBLE_CDI_DEVICES=nonsense']), false)).toEqual([])
  })

  it('finds no devices for the container of the sandbox itself', () => {
    const annotations = {
      'cdi.k8s.io/x': 'nvidia.com/gpu=0',
      'io.katacontainers.pkg.oci.container_type': 'pod_sandbox',
    }
    expect(asked(annotations, ['VISIBLE_CDI_DEVICES=nvidia.com/gpu=0'])).toEqual([])
  })

  it.each([
    '',
    'gpu',
    'gpu=0',
    'nvidia.com/gpu',
    'nvidia.com/gpu=',
    '/gpu=0',
    'nvidia.com/gpu=0=1',
    'n/g=../0',
    'n/g=0,',
  ])('refuses the annotation %j and names it', (value) => {
    expect(() => asked({ 'cdi.k8s.io/x': value })).toThrow("Annotations['cdi.k8s.io/x']: \"")
  })

  it.each(['gpu', 'nvidia.com/gpu', 'nvidia.com/gpu=', 'nvidia.com/gpu=0,', 'n/g=0:', 'n/g=0;1'])(
    'refuses the value %j of the variable and names it',
    (value) => {
      expect(() => asked({}, [`VISIBLE_CDI_DEVICES=${value}`])).toThrow('process.env: VISIBLE_CDI_DEVICES: ')
    },
  )

  it('refuses the name all together with other names', () => {
    expect(() => asked({}, ['VISIBLE_CDI_DEVICES=n/g=all,0'])).toThrow('"n/g=all,0" has both all and names')
  })

  function asked(annotations: Record<string, string>, env: string[] = []): string[] {
    return requestedCdiDevices(specOf(annotations, env), true).map(textOf)
  }
})

function specOf(annotations: Record<string, string>, env: string[]): Spec {
  return Spec.fromPartial({ Annotations: annotations, Process: { Env: env } })
}
