import { FIRMWARE_KEYS, type Machine } from '../../machine/machine.ts'
import { type Part, wordsOf } from '../parts.ts'
import type { PartsHost } from '../parts-host.ts'
import type { Backends } from './as-spec.ts'

/** Of Debian's package `ovmf`. */
export function ovmfOf({ firmware }: Pick<Machine, 'firmware'>) {
  const [code, variables] = firmware.secureBoot ? ['.secboot', '.ms'] : ['', '']
  return {
    code: `/usr/share/OVMF/OVMF_CODE_4M${code}.fd`,
    variables: `/usr/share/OVMF/OVMF_VARS_4M${variables}.fd`,
  }
}

/** QEMU's words for the firmware of a machine, whose variables are the file at `variables`, and what that loads. */
export function firmwareWords(
  machine: Machine,
  backends: Backends,
  { opener, variables }: PartsHost & { readonly variables: string },
): readonly string[] {
  const { commandLine, secureBoot, type } = machine.firmware
  const { code } = ovmfOf(machine)
  const file = (key: string, word: string) => {
    const backend = backends[key]
    return backend?.kind === 'content' ? [word, opener?.read(backend.path) ?? backend.path] : []
  }
  const flash = (unit: number, file: string, own: Part['properties']) =>
    wordsOf({ option: 'drive', properties: { if: 'pflash', format: 'raw', unit, file, ...own } })
  return [
    ...(type === 'uefi'
      ? [
          ...flash(0, code, { readonly: true }),
          ...flash(1, opener?.disk(variables, true) ?? variables, { 'auto-read-only': false }),
        ]
      : []),
    ...(secureBoot ? ['-global', 'driver=cfi.pflash01,property=secure,value=on'] : []),
    ...file(FIRMWARE_KEYS.kernel, '-kernel'),
    ...file(FIRMWARE_KEYS.initrd, '-initrd'),
    ...(commandLine === undefined ? [] : ['-append', commandLine]),
  ]
}
