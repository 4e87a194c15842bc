import type { Command } from '../../command.ts'

export const fileCommands: readonly Command[] = [
  {
    name: 'cp',
    group: 'files',
    summary: 'copy a file or a folder into a container or out of it',
    details: [
      'A folder that exists gets SOURCE under its own name. Otherwise TARGET is the name of the copy, in a folder that exists. Of SOURCE/. only what is in the folder is copied.',
      'The copy is made by tar, which this machine and the container must have. Modes, owners and links are kept; fifos and devices are left out.',
      'With --guest a tree is copied by CopyFile to TARGET itself, which must be below the folder that pods share with the host; no container is needed.',
    ],
    arguments: [
      { name: 'SOURCE', summary: 'CONTAINER:PATH, or a path of this machine', completes: 'file' },
      { name: 'TARGET', summary: 'CONTAINER:PATH, or a path of this machine', completes: 'file' },
    ],
    options: [{ name: 'guest', summary: 'TARGET is a path of the guest' }],
    examples: [
      ['cp ./app web:/srv', 'copy a folder into a container'],
      ['cp web:/var/log/app.log ./old.log', 'copy a file out of it, under another name'],
      ['cp --guest ./etc /run/kata-containers/shared/containers/etc', 'copy a tree into the guest'],
    ],
    load: () => import('./cp.ts'),
  },
]
