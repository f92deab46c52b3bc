// Icons, drawn here so that none is fetched: 24 x 24, strokes in the colour of the text. The control around one has the
// label.
const kPaths = {
  send: 'M12 19V5M6 11l6-6 6 6',
  stop: 'M7 7h10v10H7z',
  edit: 'M4 20h4L19 9l-4-4L4 16zM13 7l4 4',
  again: 'M20 11a8 8 0 1 0-2.3 6.3M20 5v6h-6',
  copy: 'M9 9h10v11H9zM5 15V4h10',
  done: 'M5 12l5 5 9-10',
  settings: 'M4 7h9M19 7h1M4 17h3M13 17h7M16 4v6M10 14v6',
  close: 'M6 6l12 12M18 6L6 18',
  back: 'M15 6l-6 6 6 6',
  forth: 'M9 6l6 6-6 6',
  down: 'M12 5v14M6 13l6 6 6-6',
  new: 'M12 5v14M5 12h14',
  tokens: 'M4 6h6v5H4zM13 6h7v5h-7zM4 14h9v5H4zM16 14h4v5h-4z',
  key: 'M8 11a4 4 0 1 0 0 8 4 4 0 0 0 0-8zM11 12l9-9M16 7l3 3',
  light: 'M12 8a4 4 0 1 0 0 8 4 4 0 0 0 0-8zM12 2v3M12 19v3M2 12h3M19 12h3M5 5l2 2M17 17l2 2M5 19l2-2M17 7l2-2',
  dark: 'M20 14A8.5 8.5 0 0 1 10 4a8.5 8.5 0 1 0 10 10z',
  auto: 'M12 3a9 9 0 1 0 0 18zM12 3a9 9 0 0 1 0 18',
} as const;

export type IconName = keyof typeof kPaths;

export function Icon({ name }: { name: IconName }) {
  return (
    <svg class="icon" viewBox="0 0 24 24" aria-hidden="true" focusable="false">
      <path
        d={kPaths[name]}
        fill="none"
        stroke="currentColor"
        stroke-width="1.8"
        stroke-linecap="round"
        stroke-linejoin="round"
      />
    </svg>
  );
}

interface IconButtonProps {
  icon: IconName;
  label: string; // what a screen reader says, and the tooltip
  onClick: () => void;
  disabled?: boolean;
  pressed?: boolean;
  expanded?: boolean;
  id?: string;
}

export function IconButton({ icon, label, onClick, disabled, pressed, expanded, id }: IconButtonProps) {
  return (
    <button
      type="button"
      class="icon-button"
      id={id}
      aria-label={label}
      title={label}
      onClick={onClick}
      disabled={disabled}
      aria-pressed={pressed}
      aria-expanded={expanded}
    >
      <Icon name={icon} />
    </button>
  );
}
